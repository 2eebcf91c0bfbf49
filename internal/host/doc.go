// Package host represents the machine: its IP families, interface addresses and
// processes, and the settings that a proxy needs, which are the limits of connection
// tracking and the OOM score. It writes only to files below /proc and /sys.
package host
