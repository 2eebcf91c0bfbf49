// Command packages tries the Debian package in an emulated machine with systemd: install,
// follow files, crash, hang, a relay over restarts, mistakes in files, an upgrade under load, removal. It runs
// on Debian, as root:
//
//	go run ./test/packages
//
// The machine is an installation of Debian 13 from the mirrors that apt uses here, with
// its own kernel, and no network to the outside. Clients and servers are in network
// namespaces in it. Nothing of this machine changes, except for a cache of the
// installation in the user's cache directory.
package main
