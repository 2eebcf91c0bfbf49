// Package libfuzzer lets libFuzzer, which ClusterFuzzLite and OSS-Fuzz run, drive native fuzz
// targets: functions of *testing.F. It needs no other package testing, so that a target and
// everything else in its test files compile as "go test" compiles them.
//
// .clusterfuzzlite/build.sh adds a file to each package with targets, which registers them, and makes
// a C archive of the package's tests. The program with libFuzzer that is linked from it says by
// the C variable fuzz_target which of them it runs.
package libfuzzer
