// Package support has the commands that look at the machine: check and bundle.
package support
