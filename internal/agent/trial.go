package agent

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// maxTrials is how many trials one search may make. A search for one Service among 10,000
// takes about 25, and each takes some milliseconds, in which nothing else is applied.
const maxTrials = 1000

var (
	errTrials = errors.New("too many trials")
	errShared = errors.New("the kernel refuses what all Services share")
)

// trial finds the Services whose rules the kernel refuses. It asks about the rules of some
// Services as if there were no others, so neither the content of the kernel nor changes by
// other programs make a difference.
type trial struct {
	agent  *Config
	base   *model.Routing
	routes map[model.ServiceName][]model.RouteChange
	left   int // trials
}

func (q *quarantine) newTrial(routes map[model.ServiceName][]model.RouteChange) *trial {
	return &trial{q.agent, q.router.Base(), routes, maxTrials}
}

// orderNames returns the Services: the oldest first, but those with changes after all others.
func (t *trial) orderNames(changes []model.RouteChange) []model.ServiceName {
	changed := make(map[model.ServiceName]int)
	for _, c := range changes {
		if c.New != nil {
			changed[c.New.Service.Name] = 1
		}
	}
	out := make([]model.ServiceName, 0, len(t.routes))
	for name := range t.routes {
		out = append(out, name)
	}
	created := func(name model.ServiceName) int64 { return t.routes[name][0].New.Service.Created }
	slices.SortFunc(out, func(a, b model.ServiceName) int {
		return cmp.Or(cmp.Compare(changed[a], changed[b]), cmp.Compare(created(a), created(b)), a.Compare(b))
	})
	return out
}

// search returns the Services that the kernel refuses by themselves, with its reasons. If it
// takes each by itself but not all together, these are the last ones in the order of the names
// without which it takes the others.
func (t *trial) search(names []model.ServiceName) (refused map[model.ServiceName]error, err error) {
	whole, err := t.tryServices(names)
	if err != nil || whole == nil {
		return nil, err
	}
	shared, err := t.askShared(names)
	if err != nil || shared != nil {
		return nil, cmp.Or(err, errShared)
	}
	refused = make(map[model.ServiceName]error)
	if err := t.searchHalves(names, whole, refused); err != nil {
		return nil, err
	}
	if len(refused) == 0 {
		err = t.searchTogether(names, refused)
	}
	return refused, err
}

// tryServices asks about some Services, and returns why the kernel refuses their rules, or an error
// without an answer.
func (t *trial) tryServices(names []model.ServiceName) (refusal, err error) {
	var changes []model.RouteChange
	for _, name := range names {
		changes = append(changes, t.routes[name]...)
	}
	if t.left--; t.left < 0 {
		return nil, errTrials
	}
	t.agent.reportAlive()
	return splitRefusal(t.agent.Applier.Check(render.Only(t.base, changes)))
}

func (t *trial) askShared(names []model.ServiceName) (refusal, err error) {
	var frontends []model.RouteChange
	for _, name := range names {
		for _, c := range t.routes[name] {
			frontends = append(frontends, model.RouteChange{Frontend: c.Frontend})
		}
	}
	return splitRefusal(t.agent.Applier.Check(render.Bare(t.base, frontends)))
}

func splitRefusal(err error) (refusal, other error) {
	if kernel.RefusesContent(err) {
		return err, nil
	}
	return nil, err
}

// searchHalves finds, among Services that the kernel refuses together, the ones that it refuses by
// themselves.
func (t *trial) searchHalves(names []model.ServiceName, why error, refused map[model.ServiceName]error) error {
	if len(names) == 1 {
		refused[names[0]] = why
		return nil
	}
	middle := len(names) / 2
	for _, half := range [][]model.ServiceName{names[:middle], names[middle:]} {
		refusal, err := t.tryServices(half)
		if err == nil && refusal != nil {
			err = t.searchHalves(half, refusal, refused)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// searchTogether adds Services that the kernel refuses only beside others.
func (t *trial) searchTogether(names []model.ServiceName, refused map[model.ServiceName]error) (err error) {
	names = slices.Clone(names)
	for {
		why, failed := t.tryServices(names)
		if failed != nil || why == nil {
			return failed
		}
		i := sort.Search(len(names)-1, func(i int) bool {
			refusal, failed := t.tryServices(names[:i+1])
			err = cmp.Or(err, failed)
			return refusal != nil
		})
		if err != nil {
			return err
		}
		refused[names[i]] = why
		names = slices.Delete(names, i, i+1)
	}
}
