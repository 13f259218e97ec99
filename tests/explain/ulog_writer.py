"""A small writer of PX4's ULog format: header, formats, parameters, subscriptions, data; layouts of PX4's versions."""

import struct

FORMATS = {
    "sensor_combined": "uint64_t timestamp;float[3] accelerometer_m_s2;",
    "vehicle_attitude": "uint64_t timestamp;float[4] q;",
    "vehicle_thrust_setpoint": "uint64_t timestamp;float[3] xyz;",
}
SENSOR = (
    "uint64_t timestamp;float[3] gyro_rad;uint32_t gyro_integral_dt;int32_t accelerometer_timestamp_relative;"
    "float[3] accelerometer_m_s2;uint32_t accelerometer_integral_dt;"
)
LANDED = "uint64_t timestamp;float alt_max;bool landed;bool freefall;bool ground_contact;uint8_t[1] _padding0;"
LANDED_NEW = "uint64_t timestamp;bool freefall;bool ground_contact;bool maybe_landed;bool landed;bool in_ground_effect;"
RATES = "uint64_t timestamp;float roll;float pitch;float yaw;"
HOVER = "uint64_t timestamp;uint64_t timestamp_sample;float hover_thrust;float hover_thrust_var;bool valid;uint8_t[7] _padding0;"  # noqa: E501
ATTITUDE = "uint64_t timestamp;uint64_t timestamp_sample;float[4] q;float[4] delta_q_reset;uint8_t quat_reset_counter;"
# Topics of the releases, with the fields that changed between them; the rest is filled with zeros.
LAYOUTS = {
    "1.6": {
        "sensor_combined": SENSOR, "vehicle_land_detected": LANDED,
        "vehicle_attitude": "uint64_t timestamp;float rollspeed;float pitchspeed;float yawspeed;float[4] q;",
        "vehicle_rates_setpoint": RATES + "float thrust;uint8_t[4] _padding0;",
    },
    "1.8": {
        "sensor_combined": SENSOR, "vehicle_land_detected": LANDED,
        "vehicle_attitude": "uint64_t timestamp;float rollspeed;float pitchspeed;float yawspeed;float[4] q;",
        "vehicle_attitude_setpoint": "uint64_t timestamp;float[4] q_d;float thrust;bool q_d_valid;",
    },
    "1.11": {
        "sensor_combined": SENSOR + "uint8_t accelerometer_clipping;uint8_t[7] _padding0;",
        "vehicle_attitude": "uint64_t timestamp;float[4] q;float[4] delta_q_reset;uint8_t quat_reset_counter;",
        "vehicle_land_detected": LANDED_NEW, "vehicle_rates_setpoint": RATES + "float[3] thrust_body;",
    },
    "1.13": {
        "sensor_combined": SENSOR, "vehicle_attitude": ATTITUDE, "vehicle_land_detected": LANDED_NEW,
        "vehicle_rates_setpoint": RATES + "float[3] thrust_body;", "hover_thrust_estimate": HOVER,
    },
    "1.14": {
        "sensor_combined": SENSOR, "vehicle_attitude": ATTITUDE, "vehicle_land_detected": LANDED_NEW,
        "vehicle_thrust_setpoint": "uint64_t timestamp;uint64_t timestamp_sample;float[3] xyz;",
        "hover_thrust_estimate": HOVER,
    },
    "1.16": {
        "sensor_combined": SENSOR + "uint8_t accelerometer_clipping;uint8_t gyro_clipping;uint8_t[6] _padding0;",
        "vehicle_attitude": ATTITUDE, "vehicle_land_detected": LANDED_NEW + "bool in_descend;uint8_t[2] _padding0;",
        "vehicle_thrust_setpoint": "uint64_t timestamp;uint64_t timestamp_sample;float[3] xyz;",
        "vehicle_rates_setpoint": RATES + "float[3] thrust_body;bool reset_integral;uint8_t[7] _padding0;",
        "hover_thrust_estimate": HOVER,
    },
}  # fmt: skip
CODES = {"uint64_t": "Q", "uint32_t": "I", "int32_t": "i", "uint8_t": "B", "bool": "?", "float": "f"}


def _message(kind: bytes, body: bytes) -> bytes:
    return struct.pack("<HB", len(body), kind[0]) + body


def _head() -> list[bytes]:
    return [b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0), _message(b"B", bytes(40))]


def write_ulog(path, topics):
    """`topics`: name -> (times in s, rows of floats)."""
    parts = _head()
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


def _packed(fields: str, time: float, values: dict) -> bytes:
    """A sample of a format; what has no value is zero, padding at the end is left out."""
    parts = [field.split(" ") for field in fields.rstrip(";").split(";")]
    while parts[-1][1].startswith("_padding"):
        parts.pop()
    data = b""
    for kind, name in parts:
        base, _, count = kind.partition("[")
        size = int(count.rstrip("]")) if count else 1
        value = round(time * 1e6) if name == "timestamp" else values.get(name, 0)
        row = [value] * size if not isinstance(value, list | tuple) else list(value)
        data += struct.pack(f"<{size}{CODES[base]}", *(float(x) if base == "float" else int(x) for x in row))
    return data


def write_layout(path, version, samples, parameters=None):
    """`samples`: (time in s, topic, {field: value}), of which the topics that the version has are written."""
    layout = LAYOUTS[version]
    major, minor = map(int, version.split("."))
    key = b"uint32_t ver_sw_release"
    parts = [*_head(), _message(b"I", bytes([len(key)]) + key + struct.pack("<I", major << 24 | minor << 16 | 255))]
    for name, value in (parameters or {}).items():
        key = f"float {name}".encode()
        parts.append(_message(b"P", bytes([len(key)]) + key + struct.pack("<f", value)))
    parts += [_message(b"F", f"{name}:{fields}".encode()) for name, fields in layout.items()]
    parts += [_message(b"A", struct.pack("<BH", 0, i) + name.encode()) for i, name in enumerate(layout)]
    numbers = {name: i for i, name in enumerate(layout)}
    for time, topic, values in sorted(samples, key=lambda s: s[0]):
        if topic in layout:
            parts.append(_message(b"D", struct.pack("<H", numbers[topic]) + _packed(layout[topic], time, values)))
    path.write_bytes(b"".join(parts))
    return path
