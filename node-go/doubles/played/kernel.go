package played

import (
	"encoding/json"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Kernel is a gVisor kernel that plays what a test tells it: a real one cannot be made to answer wrongly. Its maps are
// those of methods, and of files by their paths; they are set before it is asked.
type Kernel struct {
	Before map[string]func()
	Answer map[string]string
	Files  map[string]string
	List   []byte

	t     *testing.T
	mu    sync.Mutex
	stops int
}

type asked struct {
	Method string `json:"method"`
	Arg    struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
	} `json:"arg"`
}

// Serve plays one at a control socket until the test ends.
func Serve(t *testing.T, socket string) *Kernel {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	made := &Kernel{t: t, Before: map[string]func(){}, Answer: map[string]string{}, Files: map[string]string{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			serving.Go(func() { made.serve(connection) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return made
}

func (p *Kernel) serve(connection *net.UnixConn) {
	defer connection.Close()
	for {
		text, rights := make([]byte, 64<<10), make([]byte, 1024)
		n, m, _, _, err := connection.ReadMsgUnix(text, rights)
		if err != nil || n == 0 {
			return
		}
		files := received(rights[:m])
		var call asked
		if err := json.Unmarshal(text[:n], &call); err != nil {
			p.t.Error(err)
			return
		}
		refusal := p.do(call, files)
		for _, file := range files {
			_ = file.Close()
		}
		answer, _ := json.Marshal(map[string]any{"success": refusal == "", "err": refusal, "result": map[string]any{}})
		if _, err := connection.Write(answer); err != nil {
			return
		}
	}
}

func received(rights []byte) (files []*os.File) {
	messages, _ := unix.ParseSocketControlMessage(rights)
	for at := range messages {
		descriptors, _ := unix.ParseUnixRights(&messages[at])
		for _, one := range descriptors {
			files = append(files, os.NewFile(uintptr(one), "received"))
		}
	}
	return files
}

func (p *Kernel) do(call asked, files []*os.File) string {
	p.mu.Lock()
	before, answer := p.Before[call.Method], p.Answer[call.Method]
	p.mu.Unlock()
	if before != nil {
		before()
	}
	if answer != "" {
		return answer
	}
	switch call.Method {
	case "containerManager.Pause":
		p.Stop(1)
	case "containerManager.Resume":
		p.Stop(-1)
	case "Fs.Read":
		_, err := files[0].WriteString(p.file(call.Arg.Path))
		return words(err)
	case "containerManager.FSSave":
		_, err := files[1].Write(p.List)
		return words(err)
	default:
		return "unknown method"
	}
	return ""
}

func words(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// Say has it answer a method with words from now on; empty: it does what it is asked.
func (p *Kernel) Say(method, words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Answer[method] = words
}

// Stop has its processes stop, or go on.
func (p *Kernel) Stop(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stops += by; p.stops < 0 {
		p.t.Error("the kernel has ended: it was told to go on once too often")
	}
}

// Standing returns how often they were told to stop and not to go on.
func (p *Kernel) Standing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops
}

func (p *Kernel) file(path string) string {
	if path != "/proc/1/status" {
		return p.Files[path]
	}
	if p.Standing() > 0 {
		return "Name:\tpause\nState:\tD (disk sleep)\n"
	}
	return "Name:\tpause\nState:\tS (sleeping)\n"
}
