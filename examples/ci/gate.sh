#!/bin/sh
# A pipeline's job: one tool call and one review by an agent, both under policy.json. It passes when both do.
#
# Usage: gate.sh [MODEL]; DSH_HOST is the binary, `dsh-host` by default.
set -eu
cd "$(dirname "$0")"
host="${DSH_HOST:-dsh-host}"
model="${1:-script:review.jsonl}"

# The policy comes first, so it is there whatever else is. `--strict`: a denial decides the exit code, even if the run went on.
# `--locked`: nothing runs that is not in `dsh.lock`, to the byte and with no more grants; the README says how it is written.
set -- --locked --plugin permission --plugin-config permission=@policy.json \
    --plugin files --grant files=fs:read:. --workspace workspace --strict --no-save

echo "== the change log can be read and has an entry"
"$host" tool call "$@" read '{"path":"CHANGELOG.md","start-line":3,"lines":1}'
echo
echo "== an agent reviews the release"
"$host" "$@" --model "$model" --output json "May this be released? Read CHANGELOG.md."
echo "== passed"
