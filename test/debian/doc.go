// Package debian runs programs on the kernels of Debian releases: it unpacks their
// packages, makes an initial file system of them, and boots that in a virtual
// machine that qemu emulates in software.
//
// It needs root, qemu and a Debian machine, whose mirror it uses, of the
// architecture amd64.
package debian
