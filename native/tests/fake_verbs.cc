// The calls of libibverbs: objects, their lifetimes, and events.
#include <cerrno>

#include "objects.h"

namespace meshcache::fake {

namespace {

int query_device(ibv_context* context, ibv_device_attr* into) {
  Call call;
  if (call.fabric.fails("query_device")) return errno;
  const DeviceSpec& spec = as_device(context)->spec;
  *into = {};
  snprintf(into->fw_ver, sizeof into->fw_ver, "fake");
  into->max_mr_size = UINT64_MAX;
  into->max_qp = 1 << 16;
  into->max_qp_wr = spec.max_qp_wr;
  into->max_sge = spec.max_sge;
  into->max_sge_rd = spec.max_sge;
  into->max_cq = 1 << 16;
  into->max_cqe = spec.max_cqe;
  into->max_mr = 1 << 16;
  into->max_pd = 1 << 10;
  into->max_qp_rd_atom = spec.max_read_depth;
  into->max_qp_init_rd_atom = spec.max_read_depth;
  into->max_res_rd_atom = 1 << 20;
  into->phys_port_cnt = 1;
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* into) {
  Call call;
  if (call.fabric.fails("query_port")) return errno;
  if (port != 1) return EINVAL;
  const Device& device = *as_device(context);
  into->state = device.link_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  into->max_mtu = IBV_MTU_4096;
  into->active_mtu = IBV_MTU_4096;
  into->gid_tbl_len = 4;
  into->max_msg_sz = device.spec.max_message_bytes;
  into->phys_state = device.link_up ? 5 : 3;
  into->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

ibv_pd* alloc_pd(ibv_context* context) {
  Call call;
  if (call.fabric.fails("alloc_pd")) return nullptr;
  auto* pd = new Pd{};
  pd->context = context;
  pd->device = as_device(context);
  pd->serial = call.fabric.adopt();
  call.fabric.pds[pd->serial] = pd;
  return pd;
}

int dealloc_pd(ibv_pd* handle) {
  Call call;
  Pd* pd = checked(call.fabric.pds, handle, "ibv_dealloc_pd");
  for (auto& [serial, mr] : call.fabric.mrs) {
    if (mr->pd == pd) misuse("ibv_dealloc_pd: it has memory regions");
  }
  for (auto& [serial, qp] : call.fabric.qps) {
    if (qp->pd == pd) misuse("ibv_dealloc_pd: it has queue pairs");
  }
  call.fabric.pds.erase(pd->serial);
  delete pd;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* handle, void* addr, size_t length, int access) {
  Call call;
  Pd* pd = checked(call.fabric.pds, handle, "ibv_reg_mr");
  if ((access & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING)) != 0) {
    misuse("ibv_reg_mr: peers may read and nothing else; access flags " + std::to_string(access));
  }
  if (call.fabric.fails("reg_mr")) return nullptr;
  if (length == 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto* mr = new Mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = length;
  mr->access = access;
  mr->serial = call.fabric.adopt();
  do {
    mr->lkey = static_cast<uint32_t>(call.fabric.random()) | 1;
  } while (call.fabric.mrs_by_key.count(mr->lkey) > 0);
  // Different numbers, and none where there is nothing to read, so that mixing them up fails.
  mr->rkey = (access & IBV_ACCESS_REMOTE_READ) != 0 ? ~mr->lkey : 0;
  call.fabric.mrs[mr->serial] = mr;
  call.fabric.mrs_by_key[mr->lkey] = mr;
  return mr;
}

int dereg_mr(ibv_mr* handle) {
  Call call;
  call.fabric.fails("dereg_mr");  // counted; it cannot fail
  Mr* mr = checked(call.fabric.mrs, handle, "ibv_dereg_mr");
  for (auto& [serial, qp] : call.fabric.qps) {
    for (const WorkRequest& request : qp->queue) {
      for (const ibv_sge& piece : request.sges) {
        if (piece.lkey == mr->lkey) misuse("ibv_dereg_mr: a work request that has not completed uses it");
      }
    }
  }
  call.fabric.mrs_by_key.erase(mr->lkey);
  call.fabric.mrs.erase(mr->serial);
  delete mr;
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  Call call;
  if (call.fabric.fails("create_comp_channel")) return nullptr;
  auto* channel = new CompChannel{};
  channel->context = context;
  channel->fd = channel->signal.fd();
  channel->serial = call.fabric.adopt();
  call.fabric.comp_channels[channel->serial] = channel;
  return channel;
}

int destroy_comp_channel(ibv_comp_channel* handle) {
  Call call;
  CompChannel* channel = checked(call.fabric.comp_channels, handle, "ibv_destroy_comp_channel");
  for (auto& [serial, cq] : call.fabric.cqs) {
    if (cq->channel == channel) misuse("ibv_destroy_comp_channel: a completion queue uses it");
  }
  call.fabric.comp_channels.erase(channel->serial);
  delete channel;
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel, int vector) {
  Call call;
  if (call.fabric.fails("create_cq")) return nullptr;
  if (channel != nullptr) checked(call.fabric.comp_channels, channel, "ibv_create_cq with a channel");
  if (entries <= 0 || entries > as_device(context)->spec.max_cqe || vector < 0 || vector >= context->num_comp_vectors) {
    errno = EINVAL;
    return nullptr;
  }
  auto* cq = new Cq{};
  cq->context = context;
  cq->device = as_device(context);
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->cqe = entries;
  cq->serial = call.fabric.adopt();
  call.fabric.cqs[cq->serial] = cq;
  return cq;
}

int destroy_cq(ibv_cq* handle) {
  Call call;
  Cq* cq = checked(call.fabric.cqs, handle, "ibv_destroy_cq");
  if (cq->unacked > 0) misuse("ibv_destroy_cq hangs: completion events were not acknowledged");
  for (auto& [serial, qp] : call.fabric.qps) {
    if (qp->send_cq == cq || qp->recv_cq == cq) misuse("ibv_destroy_cq: a queue pair uses it");
  }
  if (cq->channel != nullptr) {
    auto* channel = static_cast<CompChannel*>(cq->channel);
    std::deque<Cq*> others;
    for (Cq* waiting : channel->events) {
      if (waiting != cq) others.push_back(waiting);
    }
    channel->events = others;
    if (others.empty()) channel->signal.lower();
  }
  call.fabric.cqs.erase(cq->serial);
  delete cq;
  return 0;
}

int get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
  Call call;
  CompChannel* channel = checked(call.fabric.comp_channels, handle, "ibv_get_cq_event");
  if (channel->events.empty()) {
    if (!channel->signal.non_blocking()) misuse("ibv_get_cq_event blocks for ever");
    errno = EAGAIN;
    return -1;
  }
  Cq* from = channel->events.front();
  channel->events.pop_front();
  if (channel->events.empty()) channel->signal.lower();
  from->unacked++;
  *cq = from;
  *cq_context = from->cq_context;
  return 0;
}

void ack_cq_events(ibv_cq* handle, unsigned count) {
  Call call;
  Cq* cq = checked(call.fabric.cqs, handle, "ibv_ack_cq_events");
  if (count > cq->unacked) misuse("ibv_ack_cq_events: more than there were");
  cq->unacked -= count;
}

int modify_qp(ibv_qp* handle, ibv_qp_attr* attributes, int mask) {
  Call call;
  Qp* qp = checked(call.fabric.qps, handle, "ibv_modify_qp");
  if (call.fabric.fails_planned("modify_qp")) return errno;
  if ((mask & ~(IBV_QP_STATE | IBV_QP_ACCESS_FLAGS)) != 0) misuse("ibv_modify_qp: the fake does not know that attribute");
  if ((mask & IBV_QP_STATE) != 0 && attributes->qp_state != IBV_QPS_ERR) misuse("ibv_modify_qp: only to the error state");
  if ((mask & IBV_QP_STATE) != 0) {
    qp->state = IBV_QPS_ERR;
    if (qp->hardware != IBV_QPS_ERR) nic_enter_error(call.fabric, *qp);
  } else {
    if (qp->state != IBV_QPS_INIT && qp->state != IBV_QPS_RTS) return EINVAL;
    qp->access = attributes->qp_access_flags;
  }
  return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* into) {
  Call call;
  Device& device = *as_device(context);
  while (!device.async_events.empty()) {
    const AsyncEvent event = device.async_events.front();
    device.async_events.pop_front();
    if (device.async_events.empty()) device.signal.lower();
    into->event_type = event.type;
    if (event.qp != 0) {
      Qp* qp = find(call.fabric.qps, event.qp);
      if (qp == nullptr) continue;
      qp->async_unacked++;
      into->element.qp = qp;
    } else {
      device.async_unacked++;
      into->element.port_num = 1;
    }
    return 0;
  }
  if (!device.signal.non_blocking()) misuse("ibv_get_async_event blocks for ever");
  errno = EAGAIN;
  return -1;
}

void ack_async_event(ibv_async_event* event) {
  Call call;
  switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR: {
      Qp* qp = checked(call.fabric.qps, event->element.qp, "ibv_ack_async_event");
      if (qp->async_unacked == 0) misuse("ibv_ack_async_event: twice");
      qp->async_unacked--;
      break;
    }
    default:
      break;
  }
}

}  // namespace

void fill_verbs_calls(VerbsApi& api) {
  api.query_device = query_device;
  api.query_port = query_port;
  api.alloc_pd = alloc_pd;
  api.dealloc_pd = dealloc_pd;
  api.reg_mr = reg_mr;
  api.dereg_mr = dereg_mr;
  api.create_comp_channel = create_comp_channel;
  api.destroy_comp_channel = destroy_comp_channel;
  api.create_cq = create_cq;
  api.destroy_cq = destroy_cq;
  api.get_cq_event = get_cq_event;
  api.ack_cq_events = ack_cq_events;
  api.modify_qp = modify_qp;
  api.get_async_event = get_async_event;
  api.ack_async_event = ack_async_event;
}

}  // namespace meshcache::fake
