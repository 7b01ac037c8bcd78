# Sourced by quickstart.sh and ../testsuite/run.sh: installs missing Debian packages, builds pdcc.

# need PACKAGE...: installs those that are missing; where nothing is missing apt is not touched.
need() {
	missing=
	for p in "$@"; do
		dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
	done
	[ -z "$missing" ] && return 0
	echo "installing:$missing"
	as_root=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || { echo "needs root or sudo to install:$missing" >&2; return 1; }
		as_root=sudo
	fi
	# shellcheck disable=SC2086
	$as_root apt-get update -qq &&
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

BUILD_PACKAGES="gcc libc6-dev make cmake pkg-config libprotobuf-c-dev protobuf-c-compiler libonnx-dev libyaml-dev
	libdnnl-dev libopenmpi-dev openmpi-bin"

# build_pdcc ROOT [cmake options]: configures and builds ROOT/build; says so once, shows the log only when it fails.
build_pdcc() {
	root=$1; shift
	mkdir -p "$root/build"
	echo "building pdcc in $root/build"
	{ cmake -S "$root" -B "$root/build" "$@" && cmake --build "$root/build" -j "$(nproc)"; } >"$root/build/build.log" 2>&1 ||
		{ tail -n 30 "$root/build/build.log" >&2; return 1; }
}
