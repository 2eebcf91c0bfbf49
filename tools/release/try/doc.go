// Package try publishes a release to a registry of its own and uses it as its users do: verifies
// signatures and provenance by the commands of docs/verify.md, runs the images of both
// architectures, renders the chart and installs the package. It also changes the release, and
// checks that verification then fails. "make release-try" runs it.
//
// It needs root, Debian, jq and qemu-aarch64-static, and no network but the loopback interface.
package try
