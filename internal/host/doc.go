// Package host prepares the machine for a proxy: the limits of connection
// tracking, the priority among processes when memory runs out, and which IP
// families there are. It writes files below /proc and /sys and nothing else.
package host
