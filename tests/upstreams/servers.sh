# For scripts beside this one, to be sourced from the repository's root.
#
#   start NAME COMMAND...     starts a server, with its log in $work/NAME.log; it ends with the script
#   wait_for NAME URL         until URL answers with 200, or the server is gone
#   check KIND URL MODEL [FRONT FLAGS...]     the wire, then a front
#
# $work is a folder for the script.
upstreams="${ROPEWAY_UPSTREAMS:-${XDG_CACHE_HOME:-$HOME/.cache}/ropeway/upstreams}"
work="$(mktemp -d)"
pids=()

finish() {
  local status=$?
  for pid in "${pids[@]}"; do
    # Each runs in a process group of its own, because some servers are several processes.
    kill -TERM -- "-$pid" 2> /dev/null || true
  done
  for pid in "${pids[@]}"; do
    for _ in $(seq 100); do kill -0 -- "-$pid" 2> /dev/null || break; sleep 0.1; done
    kill -KILL -- "-$pid" 2> /dev/null || true
  done
  if [ "$status" != 0 ]; then tail -n 30 "$work"/*.log 2> /dev/null || true; fi
  if [ -n "${KEEP:-}" ]; then echo "logs are in $work"; else rm -rf "$work"; fi
  exit "$status"
}
trap finish EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# A virtual environment with a package, if it is not there yet.
install() {
  local name=$1
  shift
  [ -x "$upstreams/$name/bin/pip" ] || python3 -m venv "$upstreams/$name"
  "$upstreams/$name/bin/pip" install --quiet "$@"
}

start() {
  local name=$1
  shift
  setsid "$@" > "$work/$name.log" 2>&1 < /dev/null &
  pids+=($!)
}

answers() { python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$1" 2> /dev/null; }

wait_for() {
  local name=$1 url=$2 pid=${pids[-1]}
  for _ in $(seq 600); do
    if answers "$url"; then return; fi
    if ! kill -0 "$pid" 2> /dev/null; then echo "$name ended before it was ready"; exit 1; fi
    sleep 1
  done
  echo "$name was not ready within ten minutes"
  exit 1
}

ropeway() {
  if [ -z "${ROPEWAY:-}" ]; then
    cargo build --quiet --release -p ropeway-cli
    ROPEWAY="${CARGO_TARGET_DIR:-target}/release/ropeway"
  fi
}

check() {
  local kind=$1 url=$2 model=$3
  shift 3
  if [ "$kind" != ollama ]; then
    echo "== the wire, in tokens"
    ROPEWAY_TEST_UPSTREAM="$url" cargo test --quiet -p ropeway-pool --test live -- --nocapture --test-threads 1
  fi
  echo "== through a front"
  ropeway
  local port
  port=$(free_port)
  start ropeway "$ROPEWAY" serve --listen "127.0.0.1:$port" --no-embeddings --upstream "$kind=$url" "$@"
  wait_for ropeway "http://127.0.0.1:$port/health"
  python3 tests/upstreams/check.py "http://127.0.0.1:$port" "$url" "$model"
}
