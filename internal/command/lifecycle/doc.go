// Package lifecycle has the commands that start, end and replace: run, cleanup, and migrate from kube-proxy.
package lifecycle
