package plan

// Exported for tests.
var (
	EqualRules      = equalRules
	WithoutRefusals = withoutRefusals
)
