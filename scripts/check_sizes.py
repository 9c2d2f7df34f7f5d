"""The size rule: a module has at most 400 lines, a function at most 50.

A waiver stands in place and gives its reason: a comment ``# size: <reason>`` on the
function's ``def`` line, or in the module's first five lines. Generated code is exempt.
"""

import ast
import pathlib
import re
import subprocess
import sys

MODULE_LIMIT = 400
FUNCTION_LIMIT = 50
WAIVER = re.compile(r"# size: \S+ \S+")


def violations(path: pathlib.Path) -> list[str]:
    """Describe each module or function of one file that is too long."""
    text = path.read_text()
    lines = text.splitlines()
    found = []
    if len(lines) > MODULE_LIMIT and not any(WAIVER.search(line) for line in lines[:5]):
        found.append(f"{path}: {len(lines)} lines, at most {MODULE_LIMIT}")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if size > FUNCTION_LIMIT and not WAIVER.search(lines[node.lineno - 1]):
            found.append(
                f"{path}:{node.lineno}: {node.name} has {size} lines, at most {FUNCTION_LIMIT}"
            )
    return found


def main() -> int:
    """Check every Python file that git knows or would add; report what is too long."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    paths = [pathlib.Path(name) for name in names if "_generated" not in name]
    found = [line for path in paths if path.exists() for line in violations(path)]
    print("\n".join(found) or f"sizes: {len(paths)} modules within limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
