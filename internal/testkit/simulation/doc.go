// Package simulation runs the parts of the process on a node, from the source of objects to the rules,
// connection tracking and addresses, in one bubble of testing/synctest: on models of the kernel and of the
// directories that outlive the process. Events follow from a seed and are injected one at a time, while
// all goroutines wait, so that a seed always leads to the same transactions. Each moment of rest is
// compared with what the objects ask for.
package simulation
