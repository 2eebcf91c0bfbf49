// Package report makes tables and plots of the results of benchmarks, and keeps
// pages up to date with them. Of several records about the same thing, the last
// one counts.
package report
