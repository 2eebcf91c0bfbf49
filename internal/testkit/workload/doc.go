// Package workload makes Services, rulesets and random changes for tests and
// benchmarks, and carries plans out in memory as strictly as the kernel does.
package workload
