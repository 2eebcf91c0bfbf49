// Package command has what commands of nftproxy share: the flags of the input, the configuration and the log that
// these lead to, the running nftproxy and what a plan takes over from it, the kernel, help and completion. The commands
// are in the packages below, by group: none imports another.
package command
