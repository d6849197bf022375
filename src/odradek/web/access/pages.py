"""The routes of users, ACLs and quotas."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from odradek.client.admin.security import create_acls, delete_acls
from odradek.model.errors import OdradekError
from odradek.plan.denied import acl_command
from odradek.plan.permissions import PermissionTextError, sentences
from odradek.web.access.view import ACCESS, access_view, acls_of, permission
from odradek.web.guard import form_of, writes
from odradek.web.live.view import LiveView
from odradek.web.rendering import plain
from odradek.web.workspace import workspace

VIEW = LiveView(
    "/access",
    "access.html",
    lambda _request: (ACCESS,),
    lambda facts, request: access_view(facts, workspace(request).source.named),
)


@writes
async def change(request: Request) -> Response:
    """POST /access: allow, deny or revoke a permission."""
    fields = await form_of(request)
    try:
        bindings = permission(fields)
    except PermissionTextError as error:
        raise HTTPException(400, str(error)) from None
    cluster = await workspace(request).source.cluster()
    try:
        if fields.get("action") == "revoke":
            deleted = await delete_acls(cluster, acls_of(bindings))
            done = f"{sum(map(len, deleted))} ACLs removed: "
        else:
            for outcome in await create_acls(cluster, acls_of(bindings)):
                if outcome is not None:
                    raise outcome
            done = "done: "
    except (OdradekError, ConnectionError) as error:
        raise HTTPException(409, str(error)) from None
    verb = "remove" if fields.get("action") == "revoke" else "add"
    caller = workspace(request).source.named
    commands = [acl_command(each, caller, verb) for each in bindings]
    says = "\n".join([done + "; ".join(sentences(bindings)), *map(str, commands)])
    return JSONResponse({"says": says, "commands": plain(commands)})


ROUTES = (VIEW.route(), Route("/access", change, methods=["POST"]))
