// Package host is the machine that a proxy runs on: its IP families, the
// addresses of its interfaces and their changes, its processes, and the settings
// that a proxy needs: the limits of connection tracking, and the priority among
// processes when memory runs out. It writes only to files below /proc and /sys.
package host
