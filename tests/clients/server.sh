# For scripts beside this one: `start_server FLAGS...` builds `ropeway` unless ROPEWAY says where it is, starts it, and sets $work, a
# folder for the script, and $url. Both end with the script. To be sourced from the repository's root.
start_server() {
  if [ -z "${ROPEWAY:-}" ]; then
    cargo build --quiet --release -p ropeway-cli
    ROPEWAY="${CARGO_TARGET_DIR:-target}/release/ropeway"
  fi
  work="$(mktemp -d)"
  "$ROPEWAY" serve --listen 127.0.0.1:0 "$@" > "$work/log" 2>&1 &
  server=$!
  trap 'kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; rm -rf "$work"' EXIT
  url=""
  until url="$(grep -o -m 1 'http://127.0.0.1:[0-9]*' "$work/log" 2> /dev/null)"; do
    if ! kill -0 "$server" 2> /dev/null; then cat "$work/log"; exit 1; fi
    sleep 0.1
  done
}
