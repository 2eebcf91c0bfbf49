package budget

// Limits are all limits, in the order of the page.
var Limits = []Limit{
	{"ObjectSize", "an object in an answer", "an API server", ObjectSize, "bytes", Refused,
		"the whole answer: known objects stay in use. The API server accepts less"},
	{"CheckText", "text of `nftproxy.dev/health-check`, and each text in a check", "a Service", CheckText, "bytes", Refused, "no check"},
	{"CheckValues", "keys and values of a health check", "a Service", CheckValues, "values", Refused, "no check"},
	{"ListEntries", "entries of an annotation with a list", "an object", ListEntries, "entries", FirstCount,
		"an allowed client beyond it is not allowed, and a denied one denies all"},
	{"AliasedValues", "values that aliases of YAML repeat", "a document", AliasedValues, "values", Refused, "the document"},
	{"AliasNesting", "aliases of YAML in aliases", "a document", AliasNesting, "levels", Refused, "the document"},
	{"ExplainedText", "text that is searched for the line of a mistake", "a file", ExplainedText, "bytes", Cut,
		"the message has the line of the parser"},

	{"Findings", "problems that are reported one by one", "an object", Findings, "problems", FirstCount, ""},
	{"ReportedFindings", "the same, and kept for `status`", "an object of an API server", ReportedFindings, "problems", FirstCount, ""},
	{"WrongEntries", "wrong entries that are reported one by one", "a list", WrongEntries, "entries", FirstCount, ""},
	{"FindingText", "text of a problem", "a problem", FindingText, "bytes", Cut, ""},
	{"QuotedText", "value in a problem", "a problem", QuotedText, "bytes", Cut, ""},
	{"EventNotices", "notices that become events", "a sync", EventNotices, "events", FirstCount, "the log has all"},
	{"HealthEvents", "endpoints that change their health and become events", "10 ms", HealthEvents, "events", FirstCount, ""},
	{"HealthLines", "endpoints that change their health and are logged by name", "a second", HealthLines, "lines", FirstCount, ""},

	{"PortRanges", "ports and ranges that `nftproxy.dev/ports` makes", "a Service", PortRanges, "ranges", FirstCount, ""},
	{"BalancePorts", "ports in ranges that lead to others", "a Balance", BalancePorts, "ports", Refused, "the Balance"},
	{"Connections", "a limit of concurrent connections", "a Service", Connections, "connections", Refused,
		"no limit: the kernel looks at all connections of a limit for each new one"},
	{"ClientLimits", "different values of limits per client", "a node", ClientLimits, "values", NewestLose,
		"each value is a rule for all frontends with limits ([4.94](behaviour.md#s4.94))"},
	{"LimitedClients", "clients that a limit per client remembers", "a value", LimitedClients, "clients", FirstCount,
		"others are not limited"},
	{"WeightSlots", "slots of endpoints with unequal weights, unless there are more than 1,024 endpoints", "a frontend", WeightSlots, "slots", Smaller,
		"ratios are rounded ([slots](ruleset.md#lanes))"},
	{"WeightSlotsEach", "the same, for each endpoint, if there are more than 32", "a frontend", WeightSlotsEach, "slots", Smaller, "as above"},
	{"MaglevSlots", "slots of all tables of the scheduler `maglev`", "a Service", MaglevSlots, "slots", Smaller,
		"without room for the smallest tables the scheduler is `source-hash` ([3.60](behaviour.md#s3.60))"},
	{"MaglevSlotsNode", "the same, of all Services", "a node", MaglevSlotsNode, "slots", NewestLose, "they have smaller tables, or `source-hash`"},

	{"Checks", "health checks at the same time", "a node", Checks, "checks", Wait, "`nftproxy_health_checks_late` counts them"},
	{"CheckPrograms", "programs of health checks at the same time", "a node", CheckPrograms, "programs", Wait, "as above"},
	{"CheckAnswer", "answer that a check reads", "a check", CheckAnswer, "bytes", Cut, ""},
	{"CheckHeaders", "headers of HTTP that a check reads", "a check", CheckHeaders, "bytes", Refused, "the check fails"},
	{"CheckError", "text of a failure", "an endpoint", CheckError, "bytes", Cut, ""},

	{"DrainTargets", "endpoints of a question", "`nftproxy drain`", DrainTargets, "endpoints", Refused, "the question"},
	{"DrainSearch", "endpoints that are searched for similar names", "`nftproxy drain`", DrainSearch, "endpoints", FirstCount, ""},
	{"DrainOffered", "endpoints that the shell is offered", "`nftproxy drain` and the Tab key", DrainOffered, "endpoints", FirstCount, ""},
}
