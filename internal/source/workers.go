package source

import (
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// readFile is what one file held.
type readFile struct {
	name    string
	size    int
	lists   int // read as a whole
	objects []*object
	err     error
}

// job is a part of a file: a chunk, or an item of a List.
type job struct {
	chunk chunk
	file  int   // index of the file
	list  *list // nil: a chunk
	item  int   // in the list, counted from 1

	objects   []*object
	documents int // that end with this part
	lists     int
	done      bool
	failed    bool // the list must be read as a whole
}

// readFiles reads the documents of files on all processors: nearly all of the
// time of Load goes here. The result does not depend on their number.
func readFiles(files []file, proxyName string) []readFile {
	out := make([]readFile, len(files))
	var jobs []job
	for i, f := range files {
		out[i] = readFile{name: f.name, size: len(f.data)}
		data, err := trimBOM(f.data)
		if err != nil {
			out[i].err = err
			continue
		}
		jobs = append(jobs, fileJobs(i, f.name, data)...)
	}
	runJobs(jobs, files, proxyName)
	jobs = wholeLists(jobs)
	runJobs(jobs, files, proxyName)
	before := 0
	for i := range jobs {
		j := &jobs[i]
		if i > 0 && jobs[i-1].file != j.file {
			before = 0
		}
		for _, o := range j.objects {
			o.number(before)
		}
		before += j.documents
		f := &out[j.file]
		f.objects = append(f.objects, j.objects...)
		f.lists += j.lists
	}
	return out
}

// fileJobs cuts a file into parts that can be read in parallel.
func fileJobs(index int, name string, data []byte) []job {
	r := objectReader{file: name, types: make(map[reflect.Type]*structType)}
	var jobs []job
	for _, c := range splitDocuments(data) {
		parts := r.splitList(c)
		if len(parts) == 0 {
			parts = []job{{chunk: c}}
		}
		for i := range parts {
			parts[i].file = index
		}
		jobs = append(jobs, parts...)
	}
	return jobs
}

// wholeLists replaces the items of lists that could not be read one by one.
func wholeLists(jobs []job) []job {
	failed := make(map[*list]bool)
	for i := range jobs {
		if jobs[i].failed {
			failed[jobs[i].list] = true
		}
	}
	if len(failed) == 0 {
		return jobs
	}
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return failed[j.list] && j.item > 1 })
	for i := range jobs {
		if failed[jobs[i].list] {
			jobs[i] = job{chunk: jobs[i].list.whole, file: jobs[i].file}
		}
	}
	return jobs
}

// runJobs reads those of the jobs that have not been read.
func runJobs(jobs []job, files []file, proxyName string) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			types := make(map[reflect.Type]*structType)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				j := &jobs[i]
				r := objectReader{file: files[j.file].name, proxyName: proxyName, types: types}
				r.run(j)
			}
		})
	}
	wg.Wait()
}

func (r *objectReader) run(j *job) {
	defer func() { j.done = true }()
	switch {
	case j.done:
	case j.list == nil:
		j.objects, j.documents = r.chunk(j.chunk)
		j.lists = r.lists
	default:
		o, ok := r.listItem(j)
		if j.failed = !ok; ok {
			j.objects = []*object{o}
		}
	}
}

// number adds the documents that the file has before the object's chunk.
func (o *object) number(before int) {
	o.document += before
	for _, list := range [][]*Error{o.problems, o.warnings} {
		for _, e := range list {
			e.Document += before
		}
	}
}
