package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
)

// part is a group of packages in a program.
type part struct {
	name       string
	Code, Data int64 // bytes in the file
}

// partsOf adds up the symbols of a program by group, the largest first. The sections that
// are in memory also when symbols are stripped are complete: what has no symbol is in the
// shared tables.
func partsOf(path string) ([]part, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("symbols of %s: %w", path, err)
	}
	byName := map[string]*part{tables: {name: tables}}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOBITS {
			*byName[tables].of(s) += int64(s.Size)
		}
	}
	for _, symbol := range symbols {
		if symbol.Size == 0 || int(symbol.Section) >= len(f.Sections) {
			continue
		}
		s, name := f.Sections[symbol.Section], groupOf(packageOf(symbol.Name))
		if s.Flags&elf.SHF_ALLOC == 0 || s.Type == elf.SHT_NOBITS || name == tables {
			continue
		}
		if byName[name] == nil {
			byName[name] = &part{name: name}
		}
		*byName[name].of(s) += int64(symbol.Size)
		*byName[tables].of(s) -= int64(symbol.Size)
	}
	var out []part
	for _, p := range byName {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.Code+b.Data, a.Code+a.Data), cmp.Compare(a.name, b.name))
	})
	return out, nil
}

// of returns what a section counts for.
func (p *part) of(s *elf.Section) *int64 {
	if s.Flags&elf.SHF_EXECINSTR != 0 {
		return &p.Code
	}
	return &p.Data
}
