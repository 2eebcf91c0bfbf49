// Package debian runs programs on the kernels of Debian releases: it unpacks their
// packages, makes an initial file system of them, and boots that in a virtual
// machine that qemu emulates in software.
//
// It needs root, qemu and a Debian machine, whose mirror it uses. On a machine of
// another architecture than the release, it also needs qemu's emulator of single
// programs (qemu-user-static).
package debian
