// Package input has the commands about files: new, import, validate and schema. They need no kernel.
package input
