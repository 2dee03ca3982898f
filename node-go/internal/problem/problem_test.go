package problem

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEveryCodeHasAStatus(t *testing.T) {
	for code, want := range statuses {
		err := New(code, "of %s", code).status()
		if status.Code(err) != want || want == codes.OK {
			t.Errorf("%s is sent as %v, want %v", code, status.Code(err), want)
		}
	}
}

func TestAProblemArrivesAsItWasSent(t *testing.T) {
	sent := New(Conflict, "the image is used by %d containers", 2).With("containers", "2")
	got := Received(sent.trailer())
	if got == nil || got.Code != sent.Code || got.Detail != sent.Detail || got.Details["containers"] != "2" {
		t.Fatalf("%v arrived as %v", sent, got)
	}
}

func TestTextThatIsNotUTF8IsReplaced(t *testing.T) {
	got := Received(New(Internal, "bad \xff byte").With("v\xff", "\xfe").trailer())
	if got == nil || got.Detail != "bad \uFFFD byte" || got.Details["v\uFFFD"] != "\uFFFD" {
		t.Fatalf("arrived as %#v", got)
	}
}

func TestTheFirstProblemOfAChainIsTaken(t *testing.T) {
	deadline := fmt.Errorf("pull: %w", context.DeadlineExceeded)
	for _, one := range []struct {
		err  error
		want Code
	}{
		{fmt.Errorf("outer: %w", New(ImageNotFound, "none")), ImageNotFound},
		{deadline, UpstreamTimeout},
		{status.Error(codes.DeadlineExceeded, "late"), UpstreamTimeout},
		{errors.New("anything"), Internal},
	} {
		if got := From(one.err); got.Code != one.want {
			t.Errorf("%v is %s, want %s", one.err, got.Code, one.want)
		}
	}
	if !errors.Is(New(Internal, "read: %w", deadline), context.DeadlineExceeded) {
		t.Error("a problem lost its cause")
	}
}

func TestAForeignTrailerIsNoProblem(t *testing.T) {
	if got := Received(nil); got != nil {
		t.Errorf("nothing became %v", got)
	}
	unknown := &Problem{Code: "of_another_version"}
	if got := Received(unknown.trailer()); got != nil {
		t.Errorf("an unknown code became %v", got)
	}
}
