package gate

import (
	"net/http"
	"net/url"
	"regexp"
)

const (
	part       = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	repository = part + `(?:/` + part + `)*`
	hash       = `sha256:[0-9a-f]{64}`
)

var (
	// The last parts have no slash, so a path is of one repository, whatever its name is.
	manifests = regexp.MustCompile(`^/v2/(` + repository + `)/manifests/(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|` + hash + `)$`)
	blobs     = regexp.MustCompile(`^/v2/(` + repository + `)/blobs/` + hash + `$`)
	begins    = regexp.MustCompile(`^/v2/(` + repository + `)/blobs/uploads/$`)
	under     = regexp.MustCompile(`^/v2/(` + repository + `)/blobs/uploads/([0-9a-f]{32})$`)
	whole     = regexp.MustCompile(`^` + repository + `$`)
	digest    = regexp.MustCompile(`^` + hash + `$`)
)

type kind int

const (
	content kind = iota // manifests and blobs
	beginning
	continuing
)

// wish is a request that is understood.
type wish struct {
	kind       kind
	repository string
	actions    []string // one of them is needed
	from       string   // a repository that a blob is to be taken from
	upload     string   // its number
	query      url.Values
}

// understood returns what a request asks for; false: nothing that an agent has to ask.
func understood(r *http.Request) (wish, bool) {
	// As it came: what is escaped fits no pattern.
	path, asked := r.URL.EscapedPath(), r.URL.Query()
	if found := manifests.FindStringSubmatch(path); found != nil {
		actions := map[string]string{"GET": "pull", "HEAD": "pull", "PUT": "push", "DELETE": "delete"}[r.Method]
		return wish{content, found[1], []string{actions}, "", "", nil}, actions != ""
	}
	if found := blobs.FindStringSubmatch(path); found != nil {
		return wish{content, found[1], []string{"pull"}, "", "", nil}, r.Method == http.MethodGet || r.Method == http.MethodHead
	}
	if found := begins.FindStringSubmatch(path); found != nil && r.Method == http.MethodPost {
		return begun(found[1], asked)
	}
	if found := under.FindStringSubmatch(path); found != nil {
		return continued(r.Method, found[1], found[2], asked)
	}
	return wish{}, false
}

func begun(repository string, asked url.Values) (wish, bool) {
	made := wish{beginning, repository, []string{"push"}, "", "", url.Values{}}
	if !asked.Has("mount") {
		return made, true
	}
	// Without a repository registries would look in all of them.
	made.from = asked.Get("from")
	made.query = url.Values{"mount": {asked.Get("mount")}, "from": {made.from}}
	return made, digest.MatchString(asked.Get("mount")) && whole.MatchString(made.from)
}

func continued(method, repository, upload string, asked url.Values) (wish, bool) {
	made := wish{continuing, repository, []string{"push"}, "", upload, url.Values{}}
	switch method {
	case http.MethodPatch:
		return made, true
	case http.MethodDelete:
		made.actions = []string{"push", "delete"}
		return made, true
	case http.MethodPut:
		made.query = url.Values{"digest": {asked.Get("digest")}}
		return made, digest.MatchString(asked.Get("digest"))
	}
	return made, false
}
