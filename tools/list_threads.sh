#!/bin/sh
# list_threads.sh - names (program = test) of the tests that ThreadSanitizer should see.
cd "$(dirname "$0")/.." || exit 1
for f in tests/unit/test_*.c tests/prop/prop_*.c; do
    name=$(basename "$f" .c)
    case $name in
    *pool* | *thread* | *queue* | *engine*) printf '%s ' "$name" ;;
    esac
done
