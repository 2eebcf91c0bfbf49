// Package changes sums up a change of rules by Service, for people: "shop/cart:
// affinity 600 s → 300 s; 1 endpoint replaced". It compares how a node serves each frontend,
// before and after.
//
//	objects (two inputs) ──► Objects ─┐
//	                                  ├─► []Service ──► text, JSON, Markdown
//	rules (kernel, wanted) ─► Rules ──┘
//
// Objects know more than rules: why an endpoint is no longer used, and which policy
// leaves one out.
package changes
