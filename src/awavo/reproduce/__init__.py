"""The former name of `awavo.paper`: stored results name its command."""
