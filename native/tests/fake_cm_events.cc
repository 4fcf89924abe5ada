// Events of librdmacm: channels, what waits in them, and who has to acknowledge it.
#include <cerrno>

#include "objects.h"

namespace meshcache::fake {

namespace {

EventChannel& channel_of(Id& id) { return *static_cast<EventChannel*>(id.channel); }

rdma_event_channel* create_event_channel() {
  Call call;
  if (call.fabric.fails("create_event_channel")) return nullptr;
  auto* channel = new EventChannel{};
  channel->fd = channel->signal.fd();
  channel->serial = call.fabric.adopt();
  call.fabric.event_channels[channel->serial] = channel;
  return channel;
}

void destroy_event_channel(rdma_event_channel* handle) {
  Call call;
  EventChannel* channel = checked(call.fabric.event_channels, handle, "rdma_destroy_event_channel");
  if (channel->unacked > 0) misuse("rdma_destroy_event_channel: events were not acknowledged");
  for (auto& [serial, id] : call.fabric.ids) {
    if (id->channel == channel) misuse("rdma_destroy_event_channel: an id uses it");
  }
  call.fabric.event_channels.erase(channel->serial);
  delete channel;
}

int get_cm_event(rdma_event_channel* handle, rdma_cm_event** into) {
  Call call;
  EventChannel* channel = checked(call.fabric.event_channels, handle, "rdma_get_cm_event");
  if (channel->events.empty()) {
    if (!channel->signal.non_blocking()) misuse("rdma_get_cm_event blocks for ever");
    errno = EAGAIN;
    return -1;
  }
  CmEvent* event = channel->events.front().release();
  channel->events.pop_front();
  if (channel->events.empty()) channel->signal.lower();
  cm_fetched(call.fabric, *event->subject, *event);
  channel->unacked++;
  find(call.fabric.ids, event->owner)->unacked++;
  *into = event;
  return 0;
}

int ack_cm_event(rdma_cm_event* handle) {
  Call call;
  auto* event = static_cast<CmEvent*>(handle);
  Id* owner = find(call.fabric.ids, event->owner);
  if (owner == nullptr || owner->unacked == 0) misuse("rdma_ack_cm_event: twice");
  owner->unacked--;
  channel_of(*owner).unacked--;
  delete event;
  return 0;
}

const char* event_str(rdma_cm_event_type type) {
  static const char* const names[] = {
      "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",       "RDMA_CM_EVENT_ROUTE_RESOLVED",
      "RDMA_CM_EVENT_ROUTE_ERROR",     "RDMA_CM_EVENT_CONNECT_REQUEST",  "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",      "RDMA_CM_EVENT_REJECTED",
      "RDMA_CM_EVENT_ESTABLISHED",     "RDMA_CM_EVENT_DISCONNECTED",     "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",  "RDMA_CM_EVENT_ADDR_CHANGE",
      "RDMA_CM_EVENT_TIMEWAIT_EXIT",
  };
  return type <= RDMA_CM_EVENT_TIMEWAIT_EXIT ? names[type] : "UNKNOWN EVENT";
}

}  // namespace

void cm_push(Fabric& fabric, Id& id, rdma_cm_event_type type, int status, std::vector<uint8_t> data,
             const rdma_conn_param& conn) {
  auto event = std::make_unique<CmEvent>();
  event->id = &id;
  event->subject = &id;
  event->listen_id = nullptr;
  event->event = type;
  event->status = status;
  event->owner = id.serial;
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    Id* listener = find(fabric.ids, id.listener);
    event->listen_id = listener;
    event->owner = listener->serial;  // it is the listener that waits for the acknowledgement
  }
  event->data = std::move(data);
  event->param.conn = conn;
  event->param.conn.private_data = event->data.empty() ? nullptr : event->data.data();
  event->param.conn.private_data_len = static_cast<uint8_t>(event->data.size());
  EventChannel& channel = channel_of(id);
  channel.events.push_back(std::move(event));
  channel.signal.raise();
  fabric.changed();
}

void cm_post(Fabric& fabric, Id& id, rdma_cm_event_type type, int status) { cm_push(fabric, id, type, status, {}, {}); }

// Takes the events of an id out of its channel; those of connection requests that nobody fetched, too, when it is their listener.
// Returns the ids of such requests.
std::vector<Id*> cm_drop_events(Id& id) {
  EventChannel& channel = channel_of(id);
  std::vector<Id*> never_fetched;
  std::deque<std::unique_ptr<CmEvent>> others;
  for (auto& event : channel.events) {
    if (event->subject == &id) continue;
    // Requests that nobody fetched go with their listener. So do their ids, with whatever else happened to them.
    Id* subject = event->subject;
    if (subject->listener == id.serial && !subject->handed_out) {
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) never_fetched.push_back(subject);
      continue;
    }
    others.push_back(std::move(event));
  }
  channel.events = std::move(others);
  if (channel.events.empty()) channel.signal.lower();
  return never_fetched;
}

void fill_cm_event_calls(VerbsApi& api) {
  api.create_event_channel = create_event_channel;
  api.destroy_event_channel = destroy_event_channel;
  api.get_cm_event = get_cm_event;
  api.ack_cm_event = ack_cm_event;
  api.event_str = event_str;
}

}  // namespace meshcache::fake
