"""What is spelled as upstream spells it."""

PROGRAM = "livenessprobe"
HEALTH_PATH = "/healthz"
DEFAULT_PORT = "9808"
