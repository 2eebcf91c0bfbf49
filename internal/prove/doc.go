// Package prove derives from objects what each class of packets must experience, and compares
// that with what rules do. It knows docs/behaviour.md, and neither how decisions are made
// elsewhere nor how rules are rendered: of package model it uses types and constants alone.
package prove
