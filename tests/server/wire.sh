# wire.sh - `nibble serve` on the wire: curl and wrk, killed clients, hostile bytes, and the same answer cold, warm,
# in a crowd and from another server.  Needs node and no packages; what curl and wrk are needed for is skipped
# without them.
. "$2/tests/e2e/_lib.sh"
. "$2/tests/server/_node.sh"

node_tests curl killed hostile same
