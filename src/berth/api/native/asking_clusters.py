"""From what is sent about a cluster to the cluster that is asked for: flavors and images are found here.

A flavor or an image that the caller may not use is not there for it, whatever it is called.
"""

import msgspec

from berth.api.kernel.codes import BAD_BODY
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import berth_problem
from berth.api.native import bodies_clusters as sent
from berth.api.native.calls import NativeCall
from berth.model.clusters import Cluster, NodeGroup
from berth.model.rejections import SpecInvalid
from berth.model.servers import Flavor, Image
from berth.scheduler.spec_table import keep_properties, wrong_extra_spec, wrong_image_property
from berth.view import View


def cluster_of(call: NativeCall, view: View, id: str, asked: sent.NewCluster) -> Cluster:
    """The cluster, without its nodes."""
    caller = call.caller
    if not caller.project_id:
        raise _bad("a cluster belongs to a project, and the token is of none")
    return Cluster(
        id=id,
        name=asked.name,
        project=caller.project_id,
        user=caller.user_id or "",
        anti_affinity=asked.anti_affinity,
        ratio=asked.ratio,
        domain=asked.domain,
        node_groups=tuple(node_group_of(call, view, group) for group in asked.node_groups),
    )


def node_group_of(call: NativeCall, view: View, asked: sent.NewNodeGroup) -> NodeGroup:
    flavor = _flavor(call, view, asked)
    image = None if asked.image is None else _image(call, view, asked, asked.image)
    if image is not None:
        _require_room(asked, flavor, image)
    return NodeGroup(
        name=asked.name, flavor=flavor, image=image, processes=asked.processes, count=asked.count
    )


def _flavor(call: NativeCall, view: View, asked: sent.NewNodeGroup) -> Flavor:
    by_id = view.records.get(Flavor, asked.flavor)
    called = view.records.find(Flavor, "name", asked.flavor)
    found = [by_id] if by_id is not None else called
    usable = [flavor for flavor in found if call.access.may_use_flavor(flavor)]
    if not usable:
        raise _bad(
            f"node group {asked.name} asks for the flavor {asked.flavor}, and there is none of that id or "
            "name"
        )
    _refuse(asked, f"flavor {asked.flavor}", wrong_extra_spec(usable[0].extra_specs))
    return msgspec.structs.replace(usable[0], projects=())


def _refuse(asked: sent.NewNodeGroup, what: str, wrong: SpecInvalid | None) -> None:
    if wrong is not None:
        raise _bad(
            f"node group {asked.name} cannot use the {what}: {wrong.key} is {wrong.value!r}; it must be "
            f"{wrong.accepted}"
        )


def _image(call: NativeCall, view: View, asked: sent.NewNodeGroup, ref: str) -> Image:
    by_id = view.records.get(Image, ref)
    # Names of images are nobody's alone, and are not looked for often: there is no index of them.
    called = (one for one in view.records.all(Image) if one.name == ref and call.access.finds_by_name(one))
    found = [by_id] if by_id is not None else called
    usable = [image for image in found if call.access.may_use_image(image)]
    if not usable:
        raise _bad(f"node group {asked.name} asks for the image {ref}, and there is none of that id or name")
    active = [image for image in usable if image.status == "active"]
    if len(active) > 1:
        ids = ", ".join(sorted(image.id for image in active)[:10])
        raise _bad(
            f"node group {asked.name} asks for the image {ref}, and several are called so: name one by its "
            f"id, {ids}"
        )
    if not active:
        raise _bad(
            f"node group {asked.name} asks for the image {ref}, which is {usable[0].status}: it must be "
            "active"
        )
    _refuse(asked, f"image {ref}", wrong_image_property(active[0].properties))
    kept = keep_properties(active[0].properties)
    if isinstance(kept, SpecInvalid):
        raise berth_problem(kept)
    return msgspec.structs.replace(active[0], properties=kept, tags=())


def _require_room(asked: sent.NewNodeGroup, flavor: Flavor, image: Image) -> None:
    """A disk of 0 is as large as the image."""
    for what, has, needs in (
        ("MB of memory", flavor.memory_mb, image.min_memory_mb),
        ("GB of disk", flavor.disk_gb or image.min_disk_gb, image.min_disk_gb),
    ):
        if has < needs:
            raise _bad(
                f"node group {asked.name}: the flavor {flavor.name} has {has} {what}, and the image "
                f"{asked.image} needs {needs}: choose a larger flavor"
            )


def _bad(reason: str) -> Problem:
    return Problem(400, f"The body is not what is expected here: {reason}.", BAD_BODY)
