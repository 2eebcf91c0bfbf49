// Package health answers over HTTP whether this node should get traffic: [Proxy]
// for the node as a whole, [Services] for each Service that is served only by nodes
// with endpoints of its own.
package health
