# shellcheck shell=bash
# The suites of scripts/run-tests.sh; to be sourced. A suite is a function suite_NAME that reports
# each case with `record` (run-suite.sh has that and the other functions that suites use), plus a line
# in the table. Quick suites come first, then the longest ones, builds included.
#
# The standard run makes one build and runs all suites that test the behaviour of the software in it. The
# full run adds other compilers, sanitizers, virtual machines, packages and clang-tidy. Both run every
# test case: the sanitizers run the tests of folders $left_to_sanitizers in the full run, and the suite
# "units" runs them in the standard one.

builds=$root/build-tests
# shellcheck disable=SC2034 # for the script that sources this
logs=$builds/logs

# shellcheck disable=SC2034
suites=(
  "scripts      scripts parse, and the check scripts find what they should"
  "format       clang-format has nothing to change"
  "hygiene      repository: text in one shape, no leftovers"
  "layers       include layering: who may include whom"
  "datapath     data-path files neither allocate, lock, log nor enter the kernel"
  "conformance  doc/conformance.md is what the tests' tags say"
  "headers      every header compiles alone (GCC, Clang)"
  "gcc          GCC, warnings are errors: everything but what sanitizers run"
  "units        GCC: what the full run leaves to the sanitizers"
  "netns        testrpc over iWARP between network namespaces, whose link delays, loses, reorders and is cut"
  "clang-asan   Clang, warnings are errors, with ASan and UBSan: all but long runs of programs"
  "fuzz         libFuzzer targets, each for some seconds"
  "clang-tsan   Clang with TSan: the tests of what threads share"
  "vm           a Linux guest in qemu: RDMA devices, rping and NFS over them"
  "verbs        the driver for RDMA devices, on Linux's rxe and siw, in a virtual machine"
  "interop      Linux's NFS client and server over RDMA, in a virtual machine"
  "docs         the site, no public symbol without a word, and pages of doc/ followed as they stand"
  "abi          the library exports what its headers declare, and old programs run with it"
  "tidy         clang-tidy over lib/, drivers/, bridge/ and apps/"
  "packages     Debian packages, installed into a clean Debian, where the tutorial is followed"
  "path         release build: what a call goes through from completion to doorbell is short enough"
)

# The suites that are in only one of the two runs; the others are in both.
# shellcheck disable=SC2034
declare -A only_in=(
  [units]=standard
  [headers]=full [docs]=full [abi]=full [clang-asan]=full [fuzz]=full [clang-tsan]=full [vm]=full [verbs]=full
  [interop]=full [tidy]=full [packages]=full [path]=full
)

# The builds that suites need.
# shellcheck disable=SC2034
declare -A built_by=(
  [gcc]=build-gcc [netns]=build-gcc [verbs]=build-gcc [interop]=build-gcc
  [docs]=build-perf [units]=build-units
  [clang-asan]=build-asan [fuzz]=build-asan [tidy]=build-asan
  [clang-tsan]=build-tsan
  [path]=build-release [abi]=build-abi
)
# Suites and builds of one lane run one after the other; those of different lanes run in parallel. The
# default is lane "checks", which takes one CPU.
# shellcheck disable=SC2034
declare -A lane=(
  [build-gcc]=builds [build-units]=builds [build-perf]=builds [build-asan]=builds [build-tsan]=builds [build-release]=builds
  [build-abi]=builds
  [gcc]=programs [clang-tsan]=programs [clang-asan]=sanitizers [units]=sanitizers
  [packages]=builds
  [vm]=guests [netns]=guests [verbs]=guests [interop]=guests
)
# Roughly the CPU seconds that each takes without a compiler cache. Only their proportions matter: the time
# left is worked out from them and from how fast the run has gone so far.
# shellcheck disable=SC2034
declare -A usual_cpu=(
  [scripts]=140 [format]=4 [headers]=80 [docs]=15 [netns]=100 [vm]=86 [verbs]=205 [interop]=310 [abi]=25
  [gcc]=380 [units]=300 [clang-asan]=460 [fuzz]=70 [clang-tsan]=280 [tidy]=200 [packages]=260 [path]=7
  [build-gcc]=490 [build-units]=5 [build-abi]=110 [build-asan]=620 [build-tsan]=360 [build-release]=120
)

# The longest time of a suite in seconds, unless the machine is stuck.
suite_seconds=3600

# Folders of test/ that start no polling threads or processes: their programs run in parallel. The
# others run one at a time, since two busy ones on two cores would starve each other. test/sim is one of
# the latter: it starts two processes.
quiet_folders=(base mem xdr rpc proto engine)
# Folders whose tests have several threads. Those of test/hostile have one thread that does everything,
# except for a few cases of workers that test/server covers too.
threaded_folders=(base mem fabric observe drivers runtime client server telemetry c tirpc)
# The sanitizers run these; the GCC build leaves them out in the full run. Its tests of test/apps,
# test/survival and test/interop, which only it runs, cover the same paths through the library.
left_to_sanitizers=(base mem observe drivers runtime client server telemetry hostile)

# Lines are enough for a sanitizer's or a debugger's backtrace, and the rest of what -g writes takes
# a fifth of the time. The library is optimized less under a sanitizer, for the same reason.
lines_only=(-Dcpp_args=-g1 -Dc_args=-g1)
less_optimized=(-Doptimization=1 -Ddebug=true)

suite_scripts() {
  local file
  while IFS= read -r file; do
    case $file in
      *.py) run_case "$file" python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file" ;;
      *) run_case "$file" bash -n "$file" ;;
    esac
  done < <(find scripts python test -name '*.sh' -o -name '*.py' | sort; printf '%s\n' .ci/run scripts/vm/guest/{init,start})
  run_case run-tests test/scripts/run_tests_test.py
  run_case checks test/scripts/checks_test.py
  run_case abi test/scripts/abi_test.py
  run_case docs test/scripts/docs_test.py
  run_case affected test/scripts/affected_test.py
  run_case latency-profile test/scripts/latency_profile_test.py
  run_case profile-statistics test/scripts/profile_statistics_test.py
  run_case bind test/scripts/bind_test.py
  run_case scale test/scripts/scale_test.py
  run_case doctor test/scripts/doctor_test.py
  run_case hdr-log test/scripts/hdr_log_test.py
  run_case top test/scripts/top_test.py
  run_case output test/scripts/output_test.py
  run_case dump test/scripts/dump_test.py
  run_case dump-rules test/scripts/dump_rules_test.py
  run_case dump-version2 test/scripts/dump_version2_test.py
  run_case wireshark test/scripts/wireshark_test.py
  run_case vm test/scripts/vm_test.py
}

suite_format() {
  local files
  mapfile -t files < <(find lib drivers bridge apps perf doc test -path test/data -prune -o \( -name '*.h' -o -name '*.cc' \) -print)
  run_case clang-format clang-format-19 --dry-run -Werror "${files[@]}"
}

suite_hygiene() {
  run_case repository scripts/check-hygiene.py
  run_case words scripts/check-words.py
}
suite_layers() { run_case includes scripts/check-layers.py; }
suite_datapath() { run_case names scripts/check-datapath.py; }
suite_conformance() { run_case page scripts/conformance.py --check; }
suite_headers() { run_case headers scripts/check-headers.py; }

suite_gcc() { run_all_programs gcc "${left_to_sanitizers[@]/#/--no-suite=}" --no-suite=whole-under-asan; }
suite_units() {
  local folder quiet=()
  for folder in "${left_to_sanitizers[@]}"; do
    [[ " ${quiet_folders[*]} " != *" $folder "* ]] || quiet+=("$folder")
  done
  run_programs gcc 2 "${quiet[@]/#/--suite=}"
  run_programs gcc 1 "${left_to_sanitizers[@]/#/--suite=}" --suite=whole-under-asan "${quiet[@]/#/--no-suite=}"
}
# The long tests of lanes (test/fabric) run RRDK_LANE_FACTOR times as long here.
suite_clang-asan() { RRDK_LANE_FACTOR=10 run_all_programs clang-asan; }
suite_clang-tsan() { run_programs clang-tsan 1 "${threaded_folders[@]/#/--suite=}"; }

suite_netns() {
  local link elsewhere=()
  for link in plain delay loss reorder silence; do
    logged "netns-$link" test/netns/testrpc.sh "$builds/gcc" "$link"
    case $? in
      0) record pass "$suite/$link" ;;
      77) elsewhere+=("$link=test/netns/testrpc.sh $builds/gcc $link") ;;
      *) record fail "$suite/$link" ;;
    esac
  done
  # Cases that this kernel or this user may not run are run in a guest.
  local guest_seconds=300
  [ ${#elsewhere[@]} -eq 0 ] || run_in_guest guest --timeout 900 -- "${elsewhere[@]}"
}

suite_fuzz() {
  local target
  for target in $(scripts/fuzz.sh --list); do
    run_case "$target" scripts/fuzz.sh --build "$builds/clang-asan" --seconds 8 "$target"
  done
}

suite_interop() {
  local folder=$logs/interop-lab run=(test/interop/run.sh --build "$builds/gcc") cases guest_seconds=400
  mapfile -t cases < <("${run[@]}" --guest-commands "$folder")
  run_in_guest lab --timeout 2000 --siw lo -- "${cases[@]}"
  if [ -e "$folder/server.calls" ]; then
    run_case wire-check "${run[@]}" --on-the-host "$folder" wire
  fi
  if [ -e "$folder/rows" ]; then
    run_case matrix test/interop/matrix.py check "$folder/rows"
  fi
}

suite_tidy() { run_case clang-tidy scripts/check-tidy.py "$builds/clang-asan"; }

suite_path() { run_case call-path scripts/call-path.py "$builds/release"; }

suite_abi() {
  run_case library scripts/check-abi.py "$builds/abi/librrdk.so"
  run_case symbols scripts/check-symbols.sh "$builds/abi"
}

suite_docs() {
  run_case symbols scripts/check-api.py
  run_case counters scripts/check-counters.py
  run_case site scripts/make-docs.sh "$builds/docs"
  run_case pages scripts/check-docs.py --build "$builds/gcc"
}

suite_packages() {
  logged packages scripts/package-test.sh "$builds/packages"
  case $? in
    0) record pass "$suite/clean-debian" ;;
    77) record skip "$suite/clean-debian" "$(tail -n 1 "$logs/packages.log")" ;;
    *) record fail "$suite/clean-debian" ;;
  esac
}

suite_vm() {
  local cases=(
    "devices=test/vm/devices.sh siw_lo rxe_veth rxe_pair0 rxe_pair1"
    "rping-siw=test/vm/rping.sh 10.6.0.1"
    "rping-rxe=test/vm/rping.sh 10.7.0.1"
    "capture-rxe=test/vm/capture.sh rxepair0 'udp port 4791' test/vm/rping.sh 10.8.0.2"
    "capture-siw=test/vm/capture.sh lo 'tcp' test/vm/rping.sh 10.6.0.1"
    "nfsd=scripts/vm/guest/nfsd.sh"
    "nfs3-siw=test/vm/nfs.sh 10.6.0.1 3"
    "nfs4.1-rxe=test/vm/nfs.sh 10.7.0.1 4.1"
  )
  run_in_guest guest --timeout 600 --siw lo --rxe veth --rxe pair -- "${cases[@]}"
}

suite_verbs() {
  local build=$builds/gcc try=test/vm/verbs.sh
  local cases=(
    "fabric-rxe=$try fabric 10.7.0.1 $build"
    "fabric-siw=$try fabric 10.6.0.1 $build"
    "no-windows-rxe=$try fabric 10.7.0.1?windows=no $build"
    "testrpc-rxe=$try testrpc 10.7.0.1 $build"
    "testrpc-no-windows=$try testrpc 10.7.0.1?windows=no $build"
    "testrpc-siw=$try testrpc 10.6.0.1 $build"
    "other-device-rxe=$try other-device 10.8.0.2 $build"
    "from-iwarp=$try from-iwarp 10.6.0.1 $build"
    "to-iwarp=$try to-iwarp 10.6.0.1 $build"
    "kill-client-rxe=$try kill-client 10.7.0.1 $build"
    "kill-server-rxe=$try kill-server 10.7.0.1 $build"
    "kill-client-siw=$try kill-client 10.6.0.1 $build"
    "kill-server-siw=$try kill-server 10.6.0.1 $build"
  )
  guest_seconds=400 run_in_guest guest --timeout 1800 --siw lo --rxe veth --rxe pair -- "${cases[@]}"
}

with_gcc() { build gcc gcc g++ --buildtype=debugoptimized "${lines_only[@]}"; }

# all_but FOLDER: builds everything outside that folder, except the programs of tests that GCC leaves to
# the sanitizers.
all_but() {
  local files
  targets=none with_gcc || return
  if ! files=$(scripts/lib/needed.py "$builds/gcc" "${left_to_sanitizers[@]}"); then
    record fail "$suite/targets" "scripts/lib/needed.py could not tell"
    return 1
  fi
  targets=$(grep -v "^$1/" <<<"$files") with_gcc
}

build_gcc() { all_but perf; }
build_perf() { all_but none; }
build_units() { targets="${left_to_sanitizers[*]/#/tests-}" with_gcc; }

# AddressSanitizer detects null pointers and objects that are too small by itself, and UBSan's checks for
# these take a quarter of the compiler's time. UBSan's check of virtual tables needs file descriptors, which
# some tests use up.
build_asan() {
  local twice=-fno-sanitize=null,object-size,vptr
  build clang-asan clang-19 clang++-19 "${less_optimized[@]}" '-Db_sanitize=address,undefined' \
    "-Dcpp_args=['-g1','$twice']" "-Dc_args=['-g1','$twice']" -Dfuzzers=true -Dbenchmarks=false
}

build_tsan() {
  targets="${threaded_folders[*]/#/tests-}" \
    build clang-tsan clang-19 clang++-19 "${less_optimized[@]}" "${lines_only[@]}" -Db_sanitize=thread \
    -Dbenchmarks=false -Dexamples=false
}

# As scripts/build-release.sh, but for the profile.
build_release() {
  targets=perf/perf_call \
    build release gcc g++ --buildtype=release -Db_lto=true -Dtests=false -Dexamples=false
}

# Not optimized, since only the debugging information matters.
build_abi() {
  targets='librrdk.so.0.1.0 bridge/tirpc/librrdk-tirpc.so.0.1.0' \
    build abi gcc g++ -Doptimization=0 -Ddebug=true -Dtests=false -Dbenchmarks=false -Dexamples=false
}

# run_all_programs VARIANT MESON_OPTIONS...: runs all test programs that the options do not exclude.
run_all_programs() {
  local variant=$1
  shift
  run_programs "$variant" 2 "${quiet_folders[@]/#/--suite=}" "$@"
  run_programs "$variant" 1 "${quiet_folders[@]/#/--no-suite=}" "$@"
}
