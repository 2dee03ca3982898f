package distribution

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func TestWhatAnswersMean(t *testing.T) {
	for body, want := range map[string]struct {
		status          int
		full, collected bool
	}{
		// Of Distribution 2.8 on a volume without room.
		`{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"DriverName":"filesystem","Enclosed":{"Op":"write","Path":"/x","Err":28}}}]}`: {500, true, false},
		`{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"DriverName":"filesystem","Enclosed":{"Op":"write","Path":"/x","Err":5}}}]}`:  {500, false, false},
		`{"errors":[{"code":"UNKNOWN","message":"write /x: no space left on device"}]}`:                                                                 {500, true, false},
		`{"errors":[{"code":"UNKNOWN","detail":[1]}]}`: {500, false, false},
		`{"errors":[]}`: {507, true, false},
		`{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry","detail":{}}]}`: {400, false, true},
	} {
		answered := &transport.Error{}
		if err := json.Unmarshal([]byte(body), answered); err != nil {
			t.Fatal(err)
		}
		answered.StatusCode = want.status
		if err := fmt.Errorf("wrapped: %w", answered); Full(err) != want.full || Collected(err) != want.collected {
			t.Errorf("%s: %v, %v", body, Full(err), Collected(err))
		}
	}
	if Full(nil) || Collected(fmt.Errorf("other")) {
		t.Error("it is no answer")
	}
}
