//! Real parts in front of and behind the built `codex-bridge`: what the scenarios in `tests/` stand on.
