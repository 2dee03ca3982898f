package played

import (
	"context"
	"strings"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// records is its names of images.
type records struct {
	images.UnimplementedImagesServer
	played *Containerd
}

func (r *records) Get(_ context.Context, request *images.GetImageRequest) (*images.GetImageResponse, error) {
	r.played.Mutex.Lock()
	defer r.played.Mutex.Unlock()
	one, there := r.played.Records[request.GetName()]
	if !there {
		return nil, status.Error(codes.NotFound, request.GetName())
	}
	return &images.GetImageResponse{Image: one}, nil
}

// List knows one filter: a label that is there.
func (r *records) List(_ context.Context, request *images.ListImagesRequest) (*images.ListImagesResponse, error) {
	r.played.Mutex.Lock()
	defer r.played.Mutex.Unlock()
	label := strings.Trim(strings.TrimPrefix(request.GetFilters()[0], "labels."), `"`)
	found := &images.ListImagesResponse{}
	for _, one := range r.played.Records {
		if _, there := one.GetLabels()[label]; there {
			found.Images = append(found.Images, one)
		}
	}
	return found, nil
}

// Update changes labels only, as its mask has to say.
func (r *records) Update(_ context.Context, request *images.UpdateImageRequest) (*images.UpdateImageResponse, error) {
	r.played.Mutex.Lock()
	defer r.played.Mutex.Unlock()
	given := request.GetImage()
	one, there := r.played.Records[given.GetName()]
	if !there {
		return nil, status.Error(codes.NotFound, given.GetName())
	}
	for _, path := range request.GetUpdateMask().GetPaths() {
		label, is := strings.CutPrefix(path, "labels.")
		if !is {
			return nil, status.Error(codes.InvalidArgument, path)
		}
		labels := map[string]string{label: given.GetLabels()[label]}
		for name, value := range one.GetLabels() {
			if name != label {
				labels[name] = value
			}
		}
		one = &images.Image{Name: one.GetName(), CreatedAt: one.GetCreatedAt(), Labels: labels}
		r.played.Records[given.GetName()] = one
	}
	return &images.UpdateImageResponse{Image: one}, nil
}

// made is its containers.
type made struct {
	containers.UnimplementedContainersServer
	played *Containerd
}

func (m *made) Get(_ context.Context, request *containers.GetContainerRequest) (*containers.GetContainerResponse, error) {
	m.played.Mutex.Lock()
	defer m.played.Mutex.Unlock()
	one, there := m.played.Made[request.GetID()]
	if !there {
		return nil, status.Error(codes.NotFound, request.GetID())
	}
	return &containers.GetContainerResponse{Container: one}, nil
}
