// Program kernels runs the tests that use the kernel under other kernels and
// other versions of nft than those of this machine: Debian's, in virtual
// machines that qemu emulates in software.
//
// For each release of Debian that is asked for, at the same time, it
//
//   - unpacks the kernel, nft, iptables and what they need from the packages
//     of that release, into the cache of the user, for a week;
//   - runs the golden tests with that nft on the kernel of this machine: our
//     tables are listed, and the listings are loaded again;
//   - boots the kernel with these files, the repository and the tests, as
//     compiled here, as its initial file system, and runs the tests of every
//     package that makes network namespaces.
//
// The program is its own first process in the virtual machine. A machine that
// does not report on each package is a failure, and so is a skipped test.
//
// With -counting, time is counted in instructions there: figures of tests that measure do not depend on
// other load of this machine. Such tests have the build tag counting.
//
// With -arch arm64 it does so for that architecture. On a machine of another architecture the
// golden tests are left out.
//
// It needs root, qemu and a Debian machine, whose mirror it uses.
package main
