package codec

import (
	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// CarryOut changes rules as the kernel does that gets the transactions of a plan. Between them it
// calls a function, unless that is nil.
func CarryOut(p *plan.Plan, rules *bytecode.Ruleset, between func() error) error {
	for i, phase := range p.Phases() {
		if i > 0 && between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		if err := CarryOutPhase(phase, rules); err != nil {
			return err
		}
	}
	return nil
}

// CarryOutPhase is for one transaction of a plan.
func CarryOutPhase(p *plan.Plan, rules *bytecode.Ruleset) error {
	tx, err := Encode(p)
	if err != nil {
		return err
	}
	for i := range tx.Messages {
		if err := rules.Change(bytecode.Message{Type: tx.Messages[i].Type, Data: tx.Messages[i].Data}); err != nil {
			return err
		}
	}
	return nil
}
