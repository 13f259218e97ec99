"""A small writer of PX4's ULog format: header, formats, subscriptions, data."""

import struct

FORMATS = {
    "sensor_combined": "uint64_t timestamp;float[3] accelerometer_m_s2;",
    "vehicle_attitude": "uint64_t timestamp;float[4] q;",
    "vehicle_thrust_setpoint": "uint64_t timestamp;float[3] xyz;",
}


def _message(kind: bytes, body: bytes) -> bytes:
    return struct.pack("<HB", len(body), kind[0]) + body


def write_ulog(path, topics):
    """`topics`: name -> (times in s, rows of floats)."""
    parts = [b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0), _message(b"B", bytes(40))]
    parts += [_message(b"F", f"{name}:{FORMATS[name]}".encode()) for name in topics]
    parts += [_message(b"A", struct.pack("<BH", 0, i) + name.encode()) for i, name in enumerate(topics)]
    rows = [
        (t, i, struct.pack(f"<Q{len(row)}f", round(t * 1e6), *row))
        for i, (times, values) in enumerate(topics.values())
        for t, row in zip(times, values, strict=True)
    ]
    parts += [_message(b"D", struct.pack("<H", i) + data) for _, i, data in sorted(rows, key=lambda r: r[0])]
    path.write_bytes(b"".join(parts))
    return path
