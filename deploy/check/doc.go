// Package check holds tests of the files in deploy: the kustomizations and the
// Helm chart give the same objects, and the alerts fire when they should. It is
// a module of its own, because it needs the libraries of kustomize, Helm and
// Prometheus, and the program does not.
package check
