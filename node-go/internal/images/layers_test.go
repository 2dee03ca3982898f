package images

import (
	"context"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const manifestText = `{"config":{"digest":"sha256:c","size":3},` +
	`"layers":[{"digest":"sha256:l1","size":10},{"digest":"sha256:l2","size":20},{"digest":"sha256:l1","size":10}]}`

func TestLayersAreThoseOfTheManifestAndAreReadOnce(t *testing.T) {
	played := node()
	played.Blobs = map[string][]byte{"sha256:d1": []byte(manifestText)}
	storing := store(opened(t, played), []string{"kata"}, NewUse())
	for range 2 {
		list, err := storing.List(context.Background(), true)
		if err != nil {
			t.Fatal(err)
		}
		layers := list[0].GetLayers()
		if len(layers) != 2 || layers[0].GetDigest() != "sha256:l1" || layers[1].GetSizeBytes() != 20 {
			t.Errorf("%v", layers)
		}
		// One without a digest, as what was loaded from a file, has none.
		if len(list[1].GetLayers()) != 0 {
			t.Errorf("%v", list[1])
		}
		played.Mutex.Lock()
		played.Blobs = nil
		played.Mutex.Unlock()
	}
}

func TestLayersOfAManifestThatIsNotHereAreLookedForAgain(t *testing.T) {
	played := node()
	storing := store(opened(t, played), []string{"kata"}, NewUse())
	before, err := storing.Tell(context.Background(), "", true, false)
	if err != nil || len(before.GetImages()[0].GetLayers()) != 0 {
		t.Fatalf("%v, %v", before, err)
	}
	played.Mutex.Lock()
	played.Blobs = map[string][]byte{"sha256:d1": []byte(manifestText)}
	played.Mutex.Unlock()
	after, err := storing.Tell(context.Background(), before.GetVersion(), true, false)
	if err != nil || after.GetUnchanged() || len(after.GetImages()[0].GetLayers()) != 2 {
		t.Errorf("%v, %v", after, err)
	}
}

func TestAListThatIsKnownIsNotToldAgain(t *testing.T) {
	played := node()
	storing := store(opened(t, played), []string{"kata"}, NewUse())
	first, err := storing.Tell(context.Background(), "", false, false)
	if err != nil || first.GetUnchanged() || len(first.GetImages()) != 3 {
		t.Fatalf("%v, %v", first, err)
	}
	// What changes with every start is no change of the list.
	played.Mutex.Lock()
	played.Containers = nil
	played.Mutex.Unlock()
	again, err := storing.Tell(context.Background(), first.GetVersion(), false, false)
	if err != nil || !again.GetUnchanged() || again.Images != nil || again.GetVersion() != first.GetVersion() {
		t.Errorf("%v, %v", again, err)
	}
	played.Mutex.Lock()
	played.Images = append(played.Images, &cri.Image{Id: "sha256:dddd"})
	played.Mutex.Unlock()
	changed, err := storing.Tell(context.Background(), first.GetVersion(), false, false)
	if err != nil || changed.GetUnchanged() || len(changed.GetImages()) != 4 {
		t.Errorf("%v, %v", changed, err)
	}
}
