// Package machine finds what on this machine keeps the rules from serving, or another
// program from working beside them: settings of the kernel, firewalls, other proxies.
//
// [Read] reads facts from the network namespace of the calling thread and changes
// nothing. [Check] decides from facts alone what they mean. docs/compatibility.md has
// the evidence: what was tried, and what to set.
package machine
