// Package release names the release of Kubernetes that the project is built with, tested
// against and compared with. scripts/kubernetes moves all of them to another one.
package release

import "strings"

// Kubernetes is the version as git and images have it. The tests of this package compare
// the modules and the pages with it.
const Kubernetes = "v1.37.2"

// Minor returns the release without its patch, such as "1.37".
func Minor() string {
	return strings.TrimPrefix(Kubernetes[:strings.LastIndexByte(Kubernetes, '.')], "v")
}

// Number returns the second number of the version, such as "37".
func Number() string {
	_, number, _ := strings.Cut(Minor(), ".")
	return number
}

// Libraries returns the version of the modules k8s.io/api and others that belong to
// Kubernetes, such as "v0.37.2".
func Libraries() string { return "v0" + strings.TrimPrefix(Kubernetes, "v1") }
