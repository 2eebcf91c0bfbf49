// Package release installs a release in a cluster of real kubelets, by the commands of the
// pages: the chart comes from a registry of its own, and containerd pulls the image that the
// chart names from there. "make release-try" runs it with the files of a release.
package release
