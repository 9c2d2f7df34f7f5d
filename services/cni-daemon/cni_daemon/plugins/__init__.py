"""The plugins that the daemon serves; ``interface`` says how to write one."""
