package report

import (
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// recently is how long a change of the rules by another program is a problem.
const recently = time.Hour

func interferenceText(c *api.Interference, now time.Time) string {
	by := "another program"
	if c.Process != "" {
		by = "process " + c.Process
	}
	text := fmt.Sprintf("by %s, %s ago; the repair took %s", by, now.Sub(c.Last).Round(time.Second), terminal.Count(c.Changes, "change"))
	if c.Times > 1 {
		text += fmt.Sprintf("; %d times since the start", c.Times)
	}
	return text
}

// repaired records the repair that a sync made, if any.
func repaired(c *api.Interference, s *agent.Sync) {
	if s.Err != nil || s.Plan == nil || s.Plan.Empty() || len(s.Interventions) == 0 && s.Cause != agent.Check {
		return
	}
	c.Times++
	c.Last, c.Changes, c.Process = s.Started, len(s.Plan.Changes), ""
	for _, i := range s.Interventions {
		if !i.Missed {
			c.Process = i.By.String()
		}
	}
}
